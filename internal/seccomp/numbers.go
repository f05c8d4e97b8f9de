package seccomp

import "strings"

// numbers are those of the calls in the filter that an architecture has, by the name of it that Go
// has. A test compares them with golang.org/x/sys.
var numbers = map[string]string{
	"amd64": `access=21 chdir=80 chmod=90 chown=92 close=3 close_range=436 copy_file_range=326
		creat=85 dup=32 dup2=33 dup3=292 faccessat=269 faccessat2=439 fadvise64=221
		fallocate=285 fchdir=81 fchmod=91 fchmodat=268 fchmodat2=452 fchown=93 fchownat=260
		fcntl=72 fdatasync=75 fgetxattr=193 flistxattr=196 flock=73 fremovexattr=199
		fsetxattr=190 fstat=5 fstatfs=138 fsync=74 ftruncate=77 futimesat=261 getcwd=79
		getdents=78 getdents64=217 getxattr=191 inotify_add_watch=254 inotify_init=253
		inotify_init1=294 inotify_rm_watch=255 ioctl=16 lchown=94 lgetxattr=192 link=86
		linkat=265 listxattr=194 llistxattr=195 lremovexattr=198 lseek=8 lsetxattr=189 lstat=6
		mkdir=83 mkdirat=258 mknod=133 mknodat=259 newfstatat=262 open=2 openat=257 openat2=437
		pipe=22 pipe2=293 pread64=17 preadv=295 preadv2=327 pwrite64=18 pwritev=296 pwritev2=328
		read=0 readahead=187 readlink=89 readlinkat=267 readv=19 removexattr=197 rename=82
		renameat=264 renameat2=316 rmdir=84 sendfile=40 setxattr=188 splice=275 stat=4
		statfs=137 statx=332 symlink=88 symlinkat=266 sync_file_range=277 syncfs=306 tee=276
		truncate=76 umask=95 unlink=87 unlinkat=263 utime=132 utimensat=280 utimes=235 write=1
		writev=20 epoll_create=213 epoll_create1=291 epoll_ctl=233 epoll_pwait=281
		epoll_pwait2=441 epoll_wait=232 eventfd=284 eventfd2=290 poll=7 ppoll=271 pselect6=270
		select=23 signalfd=282 signalfd4=289 brk=12 get_robust_list=274 madvise=28
		membarrier=324 memfd_create=319 mincore=27 mlock=149 mlock2=325 mlockall=151 mmap=9
		mprotect=10 mremap=25 msync=26 munlock=150 munlockall=152 munmap=11 set_robust_list=273
		arch_prctl=158 capget=125 capset=126 execve=59 execveat=322 exit=60 exit_group=231
		fork=57 futex=202 futex_waitv=449 getcpu=309 getegid=108 geteuid=107 getgid=104
		getgroups=115 getpgid=121 getpgrp=111 getpid=39 getppid=110 getpriority=140
		getresgid=120 getresuid=118 getrlimit=97 getrusage=98 getsid=124 gettid=186 getuid=102
		ioprio_get=252 ioprio_set=251 kill=62 landlock_add_rule=445 landlock_create_ruleset=444
		landlock_restrict_self=446 pause=34 pidfd_open=434 pidfd_send_signal=424 prctl=157
		prlimit64=302 ptrace=101 restart_syscall=219 rseq=334 rt_sigaction=13 rt_sigpending=127
		rt_sigprocmask=14 rt_sigqueueinfo=129 rt_sigreturn=15 rt_sigsuspend=130
		rt_sigtimedwait=128 rt_tgsigqueueinfo=297 sched_get_priority_max=146
		sched_get_priority_min=147 sched_getaffinity=204 sched_getattr=315 sched_getparam=143
		sched_getscheduler=145 sched_rr_get_interval=148 sched_setaffinity=203 sched_setattr=314
		sched_setparam=142 sched_setscheduler=144 sched_yield=24 seccomp=317 set_tid_address=218
		setfsgid=123 setfsuid=122 setgid=106 setgroups=116 setpgid=109 setpriority=141
		setregid=114 setresgid=119 setresuid=117 setreuid=113 setrlimit=160 setsid=112
		setuid=105 sigaltstack=131 tgkill=234 tkill=200 uname=63 vfork=58 wait4=61 waitid=247
		msgctl=71 msgget=68 msgrcv=70 msgsnd=69 semctl=66 semget=64 semop=65 semtimedop=220
		shmat=30 shmctl=31 shmdt=67 shmget=29 alarm=37 clock_getres=229 clock_gettime=228
		clock_nanosleep=230 getitimer=36 getrandom=318 gettimeofday=96 nanosleep=35 setitimer=38
		sysinfo=99 time=201 timer_create=222 timer_delete=226 timer_getoverrun=225
		timer_gettime=224 timer_settime=223 timerfd_create=283 timerfd_gettime=287
		timerfd_settime=286 times=100 accept=43 accept4=288 bind=49 connect=42 getpeername=52
		getsockname=51 getsockopt=55 listen=50 recvfrom=45 recvmmsg=299 recvmsg=47 sendmmsg=307
		sendmsg=46 sendto=44 setsockopt=54 shutdown=48 clone=56 socket=41 socketpair=53
		personality=135 clone3=435 io_uring_setup=425 io_uring_enter=426 io_uring_register=427 sync=162`,
	"arm64": ofArm,
	// It has the same numbers, but for three calls.
	"riscv64": strings.Replace(ofArm, "renameat=38 ", "", 1) + " riscv_flush_icache=259 riscv_hwprobe=258",
}

const ofArm = `chdir=49 close=57 close_range=436 copy_file_range=285 dup=23 dup3=24 faccessat=48
	faccessat2=439 fadvise64=223 fallocate=47 fchdir=50 fchmod=52 fchmodat=53 fchmodat2=452
	fchown=55 fchownat=54 fcntl=25 fdatasync=83 fgetxattr=10 flistxattr=13 flock=32
	fremovexattr=16 fsetxattr=7 fstat=80 fstatfs=44 fsync=82 ftruncate=46 getcwd=17
	getdents64=61 getxattr=8 inotify_add_watch=27 inotify_init1=26 inotify_rm_watch=28
	ioctl=29 lgetxattr=9 linkat=37 listxattr=11 llistxattr=12 lremovexattr=15 lseek=62
	lsetxattr=6 mkdirat=34 mknodat=33 newfstatat=79 openat=56 openat2=437 pipe2=59
	pread64=67 preadv=69 preadv2=286 pwrite64=68 pwritev=70 pwritev2=287 read=63
	readahead=213 readlinkat=78 readv=65 removexattr=14 renameat=38 renameat2=276
	sendfile=71 setxattr=5 splice=76 statfs=43 statx=291 symlinkat=36 sync_file_range=84
	syncfs=267 tee=77 truncate=45 umask=166 unlinkat=35 utimensat=88 write=64 writev=66
	epoll_create1=20 epoll_ctl=21 epoll_pwait=22 epoll_pwait2=441 eventfd2=19 ppoll=73
	pselect6=72 signalfd4=74 brk=214 get_robust_list=100 madvise=233 membarrier=283
	memfd_create=279 mincore=232 mlock=228 mlock2=284 mlockall=230 mmap=222 mprotect=226
	mremap=216 msync=227 munlock=229 munlockall=231 munmap=215 set_robust_list=99 capget=90
	capset=91 execve=221 execveat=281 exit=93 exit_group=94 futex=98 futex_waitv=449
	getcpu=168 getegid=177 geteuid=175 getgid=176 getgroups=158 getpgid=155 getpid=172
	getppid=173 getpriority=141 getresgid=150 getresuid=148 getrlimit=163 getrusage=165
	getsid=156 gettid=178 getuid=174 ioprio_get=31 ioprio_set=30 kill=129
	landlock_add_rule=445 landlock_create_ruleset=444 landlock_restrict_self=446
	pidfd_open=434 pidfd_send_signal=424 prctl=167 prlimit64=261 ptrace=117
	restart_syscall=128 rseq=293 rt_sigaction=134 rt_sigpending=136 rt_sigprocmask=135
	rt_sigqueueinfo=138 rt_sigreturn=139 rt_sigsuspend=133 rt_sigtimedwait=137
	rt_tgsigqueueinfo=240 sched_get_priority_max=125 sched_get_priority_min=126
	sched_getaffinity=123 sched_getattr=275 sched_getparam=121 sched_getscheduler=120
	sched_rr_get_interval=127 sched_setaffinity=122 sched_setattr=274 sched_setparam=118
	sched_setscheduler=119 sched_yield=124 seccomp=277 set_tid_address=96 setfsgid=152
	setfsuid=151 setgid=144 setgroups=159 setpgid=154 setpriority=140 setregid=143
	setresgid=149 setresuid=147 setreuid=145 setrlimit=164 setsid=157 setuid=146
	sigaltstack=132 tgkill=131 tkill=130 uname=160 wait4=260 waitid=95 msgctl=187 msgget=186
	msgrcv=188 msgsnd=189 semctl=191 semget=190 semop=193 semtimedop=192 shmat=196
	shmctl=195 shmdt=197 shmget=194 clock_getres=114 clock_gettime=113 clock_nanosleep=115
	getitimer=102 getrandom=278 gettimeofday=169 nanosleep=101 setitimer=103 sysinfo=179
	timer_create=107 timer_delete=111 timer_getoverrun=109 timer_gettime=108
	timer_settime=110 timerfd_create=85 timerfd_gettime=87 timerfd_settime=86 times=153
	accept=202 accept4=242 bind=200 connect=203 getpeername=205 getsockname=204
	getsockopt=209 listen=201 recvfrom=207 recvmmsg=243 recvmsg=212 sendmmsg=269 sendmsg=211
	sendto=206 setsockopt=208 shutdown=210 clone=220 socket=198 socketpair=199
	personality=92 clone3=435 io_uring_setup=425 io_uring_enter=426 io_uring_register=427 sync=81`

// machines are the architectures by the names that uname has for them.
var machines = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "riscv64": "riscv64"}

// auditArch is how the kernel calls an architecture.
var auditArch = map[string]uint32{"amd64": 0xC000003E, "arm64": 0xC00000B7, "riscv64": 0xC00000F3}
