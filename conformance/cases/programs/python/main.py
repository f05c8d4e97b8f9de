import __main__

answer = 42
if __name__ == "__main__":
    print("main", __main__.answer)
