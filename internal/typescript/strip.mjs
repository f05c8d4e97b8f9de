// Makes JavaScript of TypeScript with the parser of Sucrase. What is a type becomes blanks, so that everything else stays at its line
// and column; enums and parameter properties become code on their own lines. What has no such form is refused by name.
import { parse } from "sucrase/dist/esm/parser/index.js";
import { TokenType as tt } from "sucrase/dist/esm/parser/tokenizer/types.js";
import { HelperManager } from "sucrase/dist/esm/HelperManager.js";
import NameManager from "sucrase/dist/esm/NameManager.js";
import TokenProcessor from "sucrase/dist/esm/TokenProcessor.js";
import RootTransformer from "sucrase/dist/esm/transformers/RootTransformer.js";

const blank = (text) => text.replace(/[^\s]/gu, (c) => " ".repeat(c.length));

// Blanks leaves blanks where its parent leaves nothing.
class Blanks extends TokenProcessor {
  removeInitialToken() {
    this.resultCode += this.previousWhitespaceAndComments();
    this.#skip();
  }

  removeToken() {
    this.resultCode += blank(this.previousWhitespaceAndComments());
    this.#skip();
  }

  #skip() {
    this.resultCode += blank(this.currentTokenCode());
    this.tokenIndex++;
  }

  // text is what a token is in the source.
  text(i) {
    return this.rawCodeForToken(this.tokens[i]);
  }

  // typesEnd returns the first token from i on that is no type.
  typesEnd(i) {
    while (this.tokens[i].isType) i++;
    return i;
  }

  // breaks reports whether a line ends between two tokens.
  breaks(from, to) {
    return /[\n\r\u2028\u2029]/.test(this.code.slice(this.tokens[from].end, this.tokens[to].start));
  }
}

// Statements that are types alone, and operators of types after an expression.
const STATEMENT = /^(abstract|declare|export|interface|type)$/;
const OPERATOR = /^(as|satisfies)$/;

class Root extends RootTransformer {
  // What follows what is left out may otherwise be taken for its continuation.
  processPossibleTypeRange() {
    const t = this.tokens;
    const start = t.currentIndex();
    if (!t.currentToken().isType) return false;
    const statement = STATEMENT.test(t.text(start));
    const before = t.resultCode.length + t.previousWhitespaceAndComments().length;
    super.processPossibleTypeRange();
    if (statement) {
      t.resultCode = t.resultCode.slice(0, before) + ";" + t.resultCode.slice(before + 1);
    } else if (OPERATOR.test(t.text(start)) && !t.isAtEnd() && /^[(\[`]/.test(t.text(t.currentIndex())) && t.breaks(t.currentIndex() - 1, t.currentIndex())) {
      t.resultCode = t.resultCode.slice(0, -1) + ";";
    }
    return true;
  }

  // An arrow must not begin a line, and what follows "async" neither. Only then do brackets move.
  processPossibleArrowParamEnd() {
    const t = this.tokens;
    const i = t.currentIndex();
    if (!t.matches2(tt.parenR, tt.colon) || !t.tokens[i + 1].isType || !t.breaks(i, t.typesEnd(i + 1))) return false;
    return super.processPossibleArrowParamEnd();
  }

  processPossibleAsyncArrowWithTypeParams() {
    const t = this.tokens;
    const i = t.currentIndex();
    if (t.text(i) !== "async" || !t.tokens[i + 1].isType || !t.breaks(i, t.typesEnd(i + 1))) return false;
    return super.processPossibleAsyncArrowWithTypeParams();
  }
}

function fail(message, code, at) {
  const lines = code.slice(0, at).split(/\r\n|[\n\r\u2028\u2029]/);
  throw Object.assign(new SyntaxError(message), { loc: { line: lines.length, column: lines.at(-1).length } });
}

// refuse finds what would be left out silently, or not be understood by the engine.
function refuse(tokens, code) {
  const text = (i) => code.slice(tokens[i].start, tokens[i].end);
  for (let i = 0; i + 2 < tokens.length; i++) {
    const { type, isType, start } = tokens[i];
    if (type === tt.at) fail("TypeScript: decorators are not supported here", code, start);
    if (!isType || type !== tt.name || !/^(global|module|namespace)$/.test(text(i))) continue;
    let name = i + 1;
    while (tokens[name].type === tt.name && tokens[name + 1].type === tt.dot) name += 2;
    if (text(i) !== "global" && (tokens[name].type !== tt.name || tokens[name + 1].type !== tt.braceL)) continue;
    if (text(i) === "global" && tokens[i + 1].type !== tt.braceL) continue;
    if (i === 0 || text(i - 1) !== "declare") fail(`TypeScript: ${text(i)} is not supported here: use an object or a module`, code, start);
    for (let depth = 0; i + 3 < tokens.length; i++) {
      if (tokens[i].type === tt.braceL) depth++;
      if (tokens[i].type === tt.braceR && --depth === 0) break;
    }
  }
}

// strip returns the JavaScript of code. What it throws is a SyntaxError with loc, as parsers of JavaScript have it: line from 1, column
// from 0.
export function strip(code) {
  let file;
  try {
    file = parse(code, false, true, false);
  } catch (e) {
    if (e.loc === undefined) throw e;
    fail(e.message.replace(/ \(\d+:\d+\)$/, ""), code, e.pos);
  }
  refuse(file.tokens, code);
  const nameManager = new NameManager(code, file.tokens);
  const helperManager = new HelperManager(nameManager);
  const tokenProcessor = new Blanks(code, file.tokens, false, true, helperManager);
  const context = { tokenProcessor, scopes: file.scopes, nameManager, importProcessor: null, helperManager };
  const options = { transforms: ["typescript"], disableESTransforms: true, preserveDynamicImport: true, keepUnusedImports: true };
  return new Root(context, options.transforms, false, options).transform().code;
}
