// Package tool is the code-execution tool that a chat backend gives to its language model. It works
// with every backend.
//
// A [Tool] runs the calls of a model, with a separate session for each conversation. Its parts can
// also be used alone:
//
// A [Definition] tells the model what the tool is for and which arguments it has, in the formats of
// the common model APIs. It offers only what the backend can do and the application allows.
// [ParseInput] reads the model's call into an [Input].
//
// A model cannot be asked what it meant. So an error in the form of a call is corrected if its
// meaning is beyond doubt. What cannot be done is refused before anything runs, with a text that
// the model can act on: see [Check] and [Explain]. The description of a run for a model is bounded,
// reveals nothing about the host, and says how to go on: see [Report] and [Output].
// nothing of the host in it, and says how to go on: see [Report] and [Output].
package tool
