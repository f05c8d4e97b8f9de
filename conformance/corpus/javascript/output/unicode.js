// Text beyond ASCII.
console.log("żółć 日本語 🎉");
