package engine

import (
	"context"
	"time"
)

// lingerTime is how long a request may take that the caller has given up.
const lingerTime = 2 * time.Second

// Linger is driver.Linger.
func Linger(ctx context.Context) (context.Context, context.CancelFunc) {
	l, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(lingerTime, func() { cancel(context.Cause(ctx)) })
		context.AfterFunc(l, func() { t.Stop() })
	})
	return l, func() { stop(); cancel(nil) }
}
