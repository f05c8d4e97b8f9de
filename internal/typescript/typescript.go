// Package typescript has the program that makes JavaScript of TypeScript. It is JavaScript itself
// and runs in the sandbox: nothing that hostile code is made of is parsed outside of it.
package typescript

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/base64"
	"sync"
)

//go:generate sh bundle.sh

// Script defines the variable typescript, whose method strip takes the text of a program and
// returns another one of the same meaning, with everything that stays at its line. It throws a
// SyntaxError with loc, which has line (from 1) and column (from 0). It needs an engine with
// ECMAScript 2022 and nothing of its surroundings.
//
//go:embed bundle.js
var Script string

// Packed returns Script, compressed by gzip and in base64.
var Packed = sync.OnceValue(func() string {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid, and a Buffer takes everything
	_, _ = z.Write([]byte(Script))
	_ = z.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
})
