// Package checkpoint carries a live conversation from one session to another, also on another
// backend. [Make] writes the files and the variables of a session to an archive. [Restore] reads an
// archive into a fresh session. Both use only what every session has, Session.Run and
// Session.Files. They work on every backend that has files. Variables are carried if it also has
// Python or JavaScript, and keeps its state.
//
// # What is carried
//
// Of Python:
//
//   - Modules, as imports. Names that "from x import y" has bound are imported again.
//   - Functions and classes that cells have defined, by their source. Defaults and attributes of
//     functions, and data attributes of classes, are carried as values. Decorators run again, so
//     that a state inside of them, such as a cache, begins anew: see Step.Decorated.
//   - Other variables, by pickle. Objects that several variables share stay shared, and cycles stay
//     cycles.
//   - The current directory, if it is below Workdir.
//
// Of JavaScript:
//
//   - Values of the language, with what they share and with cycles: plain objects, arrays, maps,
//     sets, dates, regular expressions, buffers and their views, errors. Constants become variables.
//   - Functions and classes by their source, and instances of these classes without private fields,
//     where Node.js tells that they use no variables of a function around them. Pyodide's JavaScript
//     does not tell, and carries no functions.
//
// Of both:
//
//   - Regular files, directories and links below executor.Workdir, with the modes of files.
//   - Packages that Options.Packages lists: they are installed again.
//
// What cannot be carried is listed with its reason: open files, sockets, threads, generators,
// locks, functions with closures, definitions whose source is not known. So are links that lead out
// of Workdir, and what exceeds the bounds. Never carried, and not listed, are the environment of
// the process, the state inside of modules (such as that of package random), changes to modules and
// to builtins, and the results of earlier cells (_ and Out).
//
// # What runs where
//
// Values are written and read by a program in the sandbox, never by this process. That program is
// an ordinary cell: it takes a number (Result.Cell), its text is in the history of the interpreter,
// it has the limits of a run, and hooks of a broker see it. It runs code of the conversation, such
// as __reduce__, possibly more than once. Names, builtins, the environment, streams and the current
// directory are afterwards as before, but objects that such code changes stay changed, and code
// that ends the interpreter ends it. So treat a failed Make like a failed cell. The caller must let
// nothing else run in the session meanwhile.
//
// An archive contains code that Restore runs in the sandbox, so restoring an archive is running
// code of whoever made it. [Seal] and [Open] let a program accept only its own archives, and only
// for the same user.
//
// # Format
//
// An archive is an uncompressed tar in the formats USTAR or PAX. Version 1 has these entries, in
// this order:
//
//   - manifest.json: a [Manifest].
//   - python/values: one pickle for each step of the manifest that has a size. They are made by one
//     pickler, so that later ones refer to objects in earlier ones.
//   - javascript/values, if the manifest lists variables of JavaScript: a graph of values in JSON,
//     which only the interpreters of two sandboxes write and read.
//   - files/...: directories, regular files and symbolic links, each directory before its entries.
//
// A reader refuses other versions, other entries and anything behind the end of the tar.
package checkpoint
