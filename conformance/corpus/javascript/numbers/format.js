// Numbers as text.
console.log((1234.5678).toFixed(2), (255).toString(16), (1e21).toString(), Number("12px"), parseInt("12px"), +"");
(0.000001234).toExponential(2)
