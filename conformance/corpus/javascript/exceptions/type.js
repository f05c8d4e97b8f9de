// A method of nothing.
const user = undefined;
user.name
