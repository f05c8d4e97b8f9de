# An attribute that is not there.
"text".no_such_method()
