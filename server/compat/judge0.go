package compat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// judge0 is the interface of Judge0: submissions, which run at once or in the background.
var judge0 = api{
	name:  "judge0",
	bases: []string{""},
	routes: map[string]route{
		"POST /submissions":        {do: judgeCreate},
		"POST /submissions/batch":  {do: judgeCreateBatch},
		"GET /submissions/{token}": {do: judgeGet},
		"GET /submissions/batch":   {do: judgeGetBatch},
		"GET /languages":           {do: judgeLanguages},
		"GET /statuses":            {do: func(*call) (int, any, error) { return http.StatusOK, judgeStatuses, nil }},
		"GET /about":               {do: func(*call) (int, any, error) { return http.StatusOK, map[string]string{"version": "1.13.1"}, nil }},
	},
	refuse: func(why refusal) any { return map[string]string{"error": why.text} },
}

// maxBatch is the largest number of submissions in a batch, as in the original.
const maxBatch = 20

// judgeIDs are the IDs of the languages in the versions of Judge0. Each means the version that the
// backend has.
var judgeIDs = []struct {
	id   int
	name string
}{
	{46, "bash"}, {63, "javascript"}, {71, "python"}, {74, "typescript"}, {92, "python"}, {93, "javascript"}, {94, "typescript"},
	{97, "javascript"}, {100, "python"}, {101, "typescript"}, {102, "javascript"}, {109, "python"}, {113, "python"},
}

type judgeStatus struct {
	ID          int    `json:"id"`
	Description string `json:"description"`
}

var judgeStatuses = []judgeStatus{
	{1, "In Queue"}, {2, "Processing"}, {3, "Accepted"}, {4, "Wrong Answer"}, {5, "Time Limit Exceeded"}, {6, "Compilation Error"},
	{7, "Runtime Error (SIGSEGV)"}, {8, "Runtime Error (SIGXFSZ)"}, {9, "Runtime Error (SIGFPE)"}, {10, "Runtime Error (SIGABRT)"},
	{11, "Runtime Error (NZEC)"}, {12, "Runtime Error (Other)"}, {13, "Internal Error"}, {14, "Exec Format Error"},
}

// keepSubmission keeps a submission, or what has become of it.
func (c *call) keepSubmission(q submission) error {
	n := len(q.Source) + len(q.stdout) + len(q.stderr) + len(q.message) + len(q.Args) + 512
	for _, s := range []*string{q.Stdin, q.Expected} {
		if s != nil {
			n += len(*s)
		}
	}
	return c.kept.put(c.client.Subject, q.token, q, int64(n))
}

// judge runs a submission, and keeps and returns what has become of it.
func (c *call) judge(ctx context.Context, q submission, j job) submission {
	q.status = 2
	_ = c.keepSubmission(q) // it needs no more than in the queue
	o, err := c.run(ctx, j, nil)
	q.finished = time.Now()
	if err != nil {
		q.status, q.message = 13, c.refusal(err).text
	} else {
		q.ended, q.stdout, q.stderr = *o, string(o.Stdout), o.stderr()
		if q.Merge {
			q.stdout, q.stderr = string(o.both)+o.ending(), ""
		}
		if q.status = q.verdict(); o.Status != executor.StatusOK {
			q.message = o.Err().Error()
		}
	}
	q.ended.both = nil
	if err := c.keepSubmission(q); err != nil {
		short := q
		short.status, short.stdout, short.stderr, short.message = 13, "", "", err.Error()
		_ = c.keepSubmission(short) // the client gets all of q if it waits, and otherwise learns that it is gone
	}
	return q
}

// judgeCreate runs a submission: in the background, or at once if the client waits.
func judgeCreate(c *call) (int, any, error) {
	body, err := c.body()
	if err != nil {
		return 0, nil, err
	}
	q, j, err := decodeJudge(c, body)
	if wrong := (invalid{}); errors.As(err, &wrong) {
		return http.StatusUnprocessableEntity, wrong, nil
	} else if err != nil {
		return 0, nil, err
	}
	if c.r.URL.Query().Get("wait") != "true" {
		return http.StatusCreated, map[string]string{"token": q.token}, c.judgeLater(q, j)
	}
	fields, err := c.judge(c.r.Context(), q, j).fields(c)
	return http.StatusCreated, fields, err
}

// judgeLater judges a submission in the background.
func (c *call) judgeLater(q submission, j job) error {
	if err := c.keepSubmission(q); err != nil {
		return err
	}
	return c.later(func(ctx context.Context) { c.judge(ctx, q, j) })
}

// judgeCreateBatch runs submissions in the background. One that is invalid does not stop the
// others.
func judgeCreateBatch(c *call) (int, any, error) {
	body, err := c.body()
	if err != nil {
		return 0, nil, err
	}
	var batch struct {
		Submissions []json.RawMessage `json:"submissions"`
	}
	if err := json.Unmarshal(body, &batch); err != nil {
		return 0, nil, bad("the batch is not JSON: %v", err)
	}
	if n := len(batch.Submissions); n == 0 || n > maxBatch {
		return 0, nil, bad("number of submissions in a batch should be from 1 to %d", maxBatch)
	}
	answers, status := []any{}, http.StatusUnprocessableEntity
	for _, raw := range batch.Submissions {
		q, j, err := decodeJudge(c, raw)
		if err == nil {
			err = c.judgeLater(q, j)
		}
		if wrong := (invalid{}); errors.As(err, &wrong) {
			answers = append(answers, wrong)
		} else if err != nil {
			answers = append(answers, map[string]string{"error": c.refusal(err).text})
		} else {
			answers, status = append(answers, map[string]string{"token": q.token}), http.StatusCreated
		}
	}
	return status, answers, nil
}

// judgeFind returns what a request asks for of a submission of the client. One of another subject
// is like one that never existed.
func (c *call) judgeFind(token string) (map[string]any, error) {
	i, _ := c.kept.get(c.client.Subject, token)
	if q, ok := i.value.(submission); ok {
		return q.fields(c)
	}
	return nil, refusal{http.StatusNotFound, "there is no such submission"}
}

func judgeGet(c *call) (int, any, error) {
	fields, err := c.judgeFind(c.r.PathValue("token"))
	return http.StatusOK, fields, err
}

func judgeGetBatch(c *call) (int, any, error) {
	tokens := strings.Split(c.r.URL.Query().Get("tokens"), ",")
	if tokens[0] == "" || len(tokens) > maxBatch {
		return 0, nil, bad("number of submissions in a batch should be from 1 to %d", maxBatch)
	}
	all := make([]map[string]any, len(tokens)) // null: there is none
	for i, token := range tokens {
		fields, err := c.judgeFind(token)
		if why := (refusal{}); errors.As(err, &why) && why.status != http.StatusNotFound {
			return 0, nil, err
		}
		all[i] = fields
	}
	return http.StatusOK, map[string]any{"submissions": all}, nil
}

func judgeLanguages(c *call) (int, any, error) {
	all := []map[string]any{}
	for _, l := range judgeIDs {
		if r, ok := c.language(l.name); ok {
			all = append(all, map[string]any{"id": l.id, "name": fmt.Sprintf("%s (%s)", l.name, r.Version)})
		}
	}
	return http.StatusOK, all, nil
}
