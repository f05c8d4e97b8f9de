package kubetest

import "context"

// Open builds the programs that the cache lacks and brings up a cluster whose node has images of
// the Docker engine of tests. It fails with ErrMissing where that is not possible.
func Open(ctx context.Context, images ...string) (*Cluster, error) {
	cache, err := Dir()
	if err != nil {
		return nil, err
	}
	programs, err := Build(ctx, cache)
	if err != nil {
		return nil, err
	}
	have, err := EngineImages(ctx, images...)
	if err != nil {
		return nil, err
	}
	return Start(ctx, Options{Cache: cache, Images: have, Programs: programs})
}
