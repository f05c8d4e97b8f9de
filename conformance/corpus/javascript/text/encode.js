// Bytes of text.
console.log(Array.from(new TextEncoder().encode("é€")).join(" "), encodeURIComponent("a b&é"), btoa("hi"));
new TextDecoder().decode(new Uint8Array([226, 130, 172]))
