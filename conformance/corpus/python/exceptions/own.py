# An exception of one's own, with arguments.
class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")


raise Refused(402, "pay first")
