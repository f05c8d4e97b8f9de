// Objects in objects are cut at some depth, long lists at some length.
console.log({ a: { b: { c: { d: 1 } } } }, Array.from({ length: 120 }, (_, i) => i));
({ x: [[[[1]]]], text: "it's", f() {}, m: new Map([["k", new Set([1])]]), d: new Date(0), e: /x/g, u: undefined })
