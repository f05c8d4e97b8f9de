// Package parity runs the same programs on several backends, and beside them with the plain
// interpreter of an image, as "python3 file.py" and "node file.js" do. It says where what they do
// differs: status, exit code, exception, output, values, artifacts and what is kept, and, by
// Surroundings, the interpreters and packages themselves. Differences are grouped by cause. Those
// that the capabilities of a backend, the list of Differences or the program itself explain are
// told from those that nothing explains.
//
// The conformance suite says what every backend must do. Two backends may both conform and yet have
// different versions of Python, other packages or another C library below. Before a host
// application moves its users, it runs the programs that matter to it on both; package corpus has
// programs of this module for a start.
//
// Package parity is an ordinary user of the contract. Programs are trusted to come from the user,
// their results are not.
package parity
