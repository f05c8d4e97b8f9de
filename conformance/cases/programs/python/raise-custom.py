class OddError(Exception):
    pass


raise OddError({{message}})
