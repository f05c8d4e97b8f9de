package pyodide

import "golang.org/x/sys/windows"

// freeBytes returns how many bytes this user may still write on the disk of dir.
func freeBytes(dir string) (free uint64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	err = windows.GetDiskFreeSpaceEx(name, &free, nil, nil)
	return free, err
}
