console.log("never" as string);
namespace Inner {
  export const x: number = 1;
}
