#!/usr/bin/env node
const later = await Promise.resolve({{text}});
console.log(later);
