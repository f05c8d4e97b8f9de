kept = {{value}}


def recall_kept():
    return kept
