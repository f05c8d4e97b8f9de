package attempttest

// outliving leave something running that is to be there after their run.
var outliving []Attempt
