try:
    print(recall_kept())
except NameError:
    print("absent")
