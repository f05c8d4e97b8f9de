package backends

// ShadowBytes returns how much of the conversations that are repeated waits in memory.
func (b *Broker) ShadowBytes() int64 { return b.shadows.held.Load() }
