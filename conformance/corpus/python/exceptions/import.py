# A module that nobody has.
import no_such_module_anywhere
