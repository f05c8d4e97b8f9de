console.error({{text}});
