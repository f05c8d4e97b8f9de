// No value.
undefined
