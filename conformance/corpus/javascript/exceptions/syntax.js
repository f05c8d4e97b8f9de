// differs on pyodide: its parser does not quote the token.
// A mistake of syntax.
const x = ;
