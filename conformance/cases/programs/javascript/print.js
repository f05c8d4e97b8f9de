console.log({{text}});
