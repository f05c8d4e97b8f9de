{
  const wall = Date.now();
  const cpu = process.cpuUsage();
  while (Date.now() - wall < {{ms}});
  const used = process.cpuUsage(cpu);
  console.log(((used.user + used.system) / 1000 / (Date.now() - wall)).toFixed(3));
}
