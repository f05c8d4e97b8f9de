// An exception of one's own.
class Refused extends Error {
  constructor(code) {
    super(`code ${code}`);
    this.name = "Refused";
  }
}
throw new Refused(402);
