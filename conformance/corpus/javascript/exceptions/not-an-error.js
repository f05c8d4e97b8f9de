// Anything can be thrown.
throw "just text";
