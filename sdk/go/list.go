package orbit

import (
	"context"
	"iter"

	adminv1 "orbit.example/sdk/go/gen/orbit/admin/v1"
)

// pageSizeMax is the most that the server puts on a page.
const pageSizeMax = 1000

// ListOptions say which executions, and how many at a time.
type ListOptions struct {
	// Filter, for example `state = RUNNING AND workflow = "order" AND labels.tenant = "a"`. Default: all.
	Filter string
	// PageSize is how many a call fetches, at most 1,000. Default: 50.
	PageSize int
}

// List goes through executions, the newest first, fetching pages as it needs them. It yields an error as its last pair.
func (c *Client) List(ctx context.Context, options ListOptions) iter.Seq2[*Execution, error] {
	return pages(func(token string) ([]*Execution, string, error) {
		response, err := invoke(ctx, c, &adminv1.ListExecutionsRequest{
			Filter: options.Filter, PageSize: int32(min(options.PageSize, pageSizeMax)), PageToken: token,
		}, c.admin.ListExecutions)
		if err != nil {
			return nil, "", err
		}
		executions := make([]*Execution, 0, len(response.Executions))
		for _, execution := range response.Executions {
			executions = append(executions, newExecution(execution))
		}
		return executions, response.NextPageToken, nil
	})
}

// Workers goes through the sessions of workers.
func (c *Client) Workers(ctx context.Context) iter.Seq2[*adminv1.Worker, error] {
	return pages(func(token string) ([]*adminv1.Worker, string, error) {
		response, err := invoke(ctx, c, &adminv1.ListWorkersRequest{PageToken: token}, c.admin.ListWorkers)
		return response.GetWorkers(), response.GetNextPageToken(), err
	})
}

// Definitions goes through the deployed definitions, by name and from the highest version down; a name, if it is not empty,
// chooses one workflow.
func (c *Client) Definitions(ctx context.Context, name string) iter.Seq2[*adminv1.DefinitionSummary, error] {
	return pages(func(token string) ([]*adminv1.DefinitionSummary, string, error) {
		response, err := invoke(ctx, c, &adminv1.ListDefinitionsRequest{Name: name, PageToken: token}, c.admin.ListDefinitions)
		return response.GetDefinitions(), response.GetNextPageToken(), err
	})
}

// Definition reads a definition, parsed and as the text that was deployed. Without a version it is the highest, a pre-release
// only if there is nothing else.
func (c *Client) Definition(ctx context.Context, name, version string) (*adminv1.GetDefinitionResponse, error) {
	return invoke(ctx, c, &adminv1.GetDefinitionRequest{Name: name, Version: version}, c.admin.GetDefinition)
}

// Count counts the executions in each state that any is in.
func (c *Client) Count(ctx context.Context) (map[ExecutionState]int64, error) {
	response, err := invoke(ctx, c, &adminv1.CountExecutionsRequest{}, c.admin.CountExecutions)
	if err != nil {
		return nil, err
	}
	counts := make(map[ExecutionState]int64, len(response.Counts))
	for _, count := range response.Counts {
		counts[ExecutionState(shortName(count.State.String()))] = count.Count
	}
	return counts, nil
}

// pages makes an iterator of calls that return a page and the token of the next.
func pages[T any](fetch func(token string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		token := ""
		for {
			page, next, err := fetch(token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, entry := range page {
				if !yield(entry, nil) {
					return
				}
			}
			// A page may be empty before the end; only the token tells.
			if next == "" {
				return
			}
			token = next
		}
	}
}
