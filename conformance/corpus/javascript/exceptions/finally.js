// finally runs.
const f = () => {
  try {
    console.log("work");
    return 1;
  } finally {
    console.log("clean");
  }
};
f()
