%no_such_magic
