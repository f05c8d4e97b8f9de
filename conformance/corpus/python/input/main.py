# A script is main.
def main():
    print("main of", __name__)


if __name__ == "__main__":
    main()
