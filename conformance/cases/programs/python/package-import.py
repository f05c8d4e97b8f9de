try:
    import six

    print("present")
except ImportError:
    print("absent")
