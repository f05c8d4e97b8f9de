// Package typescript contains the program that converts TypeScript to JavaScript. The program is
// JavaScript and runs in the sandbox, so no hostile code is parsed outside of it.
package typescript

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/base64"
	"sync"
)

//go:generate sh bundle.sh

// Script defines the variable typescript. Its method strip takes the text of a program and returns
// a program with the same meaning, in which all remaining code stays on its line. It throws a
// SyntaxError with loc, which has line (from 1) and column (from 0). It needs an engine with
// ECMAScript 2022 and nothing of its environment.
//
//go:embed bundle.js
var Script string

// Packed returns Script, compressed by gzip and in base64.
var Packed = sync.OnceValue(func() string {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // impossible: the level is valid, and writes to a Buffer do not fail
	_, _ = z.Write([]byte(Script))
	_ = z.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
})
