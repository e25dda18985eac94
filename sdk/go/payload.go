package orbit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"

	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

// payloadBytesMax is the server's limit on the JSON text of one payload.
const payloadBytesMax = 2 << 20

// errPayloadUnknown is the error of a payload whose content this SDK cannot read: it has none, or one of a newer kind. A
// handler must not run with a made-up input.
var errPayloadUnknown = errors.New("the payload has no content of a kind that this SDK knows")

// payloadText gives the JSON text of a payload.
func payloadText(payload *workflowv1.Payload) (string, error) {
	switch content := payload.GetContent().(type) {
	case *workflowv1.Payload_Json:
		return content.Json, nil
	case *workflowv1.Payload_Value:
		text, err := protojson.Marshal(content.Value)
		if err != nil {
			return "", fmt.Errorf("%w: %w", errPayloadUnknown, err)
		}
		return string(text), nil
	default:
		return "", errPayloadUnknown
	}
}

// decodePayload reads a payload into a value. A payload that is absent altogether leaves it alone.
func decodePayload(payload *workflowv1.Payload, into any) error {
	if payload == nil {
		return nil
	}
	text, err := payloadText(payload)
	if err != nil {
		return err
	}
	return decodeText([]byte(text), into)
}

// decodeText reads JSON text into a value; numbers in an `any` become json.Number.
func decodeText(text []byte, into any) error {
	if raw, ok := into.(*json.RawMessage); ok {
		*raw = text
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// encodeText makes JSON text of a value. Unlike json.Marshal it leaves <, > and & as they are: the text is kept and shown
// byte for byte.
func encodeText(value any) ([]byte, error) {
	if raw, ok := value.(json.RawMessage); ok && json.Valid(raw) {
		return raw, nil
	}
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

// encodePayload makes a payload of a value.
func encodePayload(value any) (*workflowv1.Payload, error) {
	text, err := encodeText(value)
	if err != nil {
		return nil, err
	}
	return textPayload(string(text)), nil
}

// textPayload makes a payload of JSON text.
func textPayload(text string) *workflowv1.Payload {
	return &workflowv1.Payload{Content: &workflowv1.Payload_Json{Json: text}}
}
