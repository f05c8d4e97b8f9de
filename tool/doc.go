// Package tool is the code-execution tool that a chat backend gives to its language model. It works
// with every backend.
//
// A [Tool] runs the calls of a model, each conversation in a session of its own. Its parts can be
// used alone:
//
// A [Definition] tells the model what the tool is for and what it takes, in the shapes of the
// common model APIs. It offers only what the backend can do and what the application allows.
// [ParseInput] reads the model's call into an [Input].
//
// Models are users who cannot be asked, so what they get wrong in the form of a call is read as it
// was meant, if that is beyond doubt. What cannot be done is said in words that they can act on,
// before anything runs: see [Check] and [Explain]. What they are told of a run is bounded, has
// nothing of the host in it, and says how to go on: see [Report] and [Output].
package tool
