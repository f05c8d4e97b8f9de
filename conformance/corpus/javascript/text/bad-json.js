// What is not JSON.
try {
  JSON.parse("{a:1}");
} catch (e) {
  console.log(e.name);
}
