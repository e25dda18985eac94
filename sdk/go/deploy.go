package orbit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	adminv1 "orbit.example/sdk/go/gen/orbit/admin/v1"
)

// A Deployed is what became of a definition.
type Deployed struct {
	// Name of the workflow.
	Name string
	// Version of the definition.
	Version string
	// Hash of its meaning, SHA-256 in hexadecimal digits.
	Hash string
	// Created tells whether this call stored it, and did not find it.
	Created bool
	// Warnings are what is allowed but looks like a mistake.
	Warnings []*adminv1.DefinitionFault
}

// A Source is the text of a definition in YAML or JSON.
type Source struct {
	// FileName for the faults' texts. Default: definition.
	FileName string
	// Text, at most 1 MiB.
	Text string
}

// Deploy checks definitions, which may refer to each other, and stores all of them or none. The same content again changes
// nothing. Faults are an [Error] with the reason DEFINITION_INVALID; its violations have all of them, with their places.
func (c *Client) Deploy(ctx context.Context, sources ...Source) ([]Deployed, error) {
	return c.deploy(ctx, sources, false)
}

// Validate is [Client.Deploy] without storing anything.
func (c *Client) Validate(ctx context.Context, sources ...Source) ([]Deployed, error) {
	return c.deploy(ctx, sources, true)
}

func (c *Client) deploy(ctx context.Context, sources []Source, validateOnly bool) ([]Deployed, error) {
	request := &adminv1.DeployDefinitionsRequest{ValidateOnly: validateOnly}
	for _, source := range sources {
		request.Files = append(request.Files, &adminv1.DefinitionFile{
			Content: &adminv1.DefinitionFile_Source{Source: source.Text}, FileName: source.FileName})
	}
	response, err := invoke(ctx, c, request, c.admin.DeployDefinitions)
	if err != nil {
		return nil, err
	}
	deployed := make([]Deployed, 0, len(response.Definitions))
	for _, one := range response.Definitions {
		deployed = append(deployed, Deployed{one.Name, one.Version, one.Hash, one.Created, one.Warnings})
	}
	return deployed, nil
}

// DeployFiles is [Client.Deploy] of files.
func (c *Client) DeployFiles(ctx context.Context, files ...string) ([]Deployed, error) {
	sources := make([]Source, 0, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("orbit: reading a definition: %w", err)
		}
		sources = append(sources, Source{FileName: filepath.Base(file), Text: string(text)})
	}
	return c.Deploy(ctx, sources...)
}
