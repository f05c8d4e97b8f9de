console.log(typeof recallKept === "function" ? recallKept() : "absent");
