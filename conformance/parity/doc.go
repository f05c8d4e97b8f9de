// Package parity runs the same programs on two backends and says where what they do differs: status, exit code, exception, output,
// values, artifacts and what is kept, and, by Surroundings, the interpreters and packages themselves.
//
// The conformance suite says what every backend must do. Two backends may both conform and yet have different versions of Python, other
// packages or another C library below. Before a host application moves its users, it runs the programs that matter to it on both; package
// corpus has programs of this module for a start.
//
// Package parity is an ordinary user of the contract. Programs are trusted to come from the user, their results are not.
package parity
