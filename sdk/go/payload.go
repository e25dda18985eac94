package orbit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

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
	if value == nil {
		return []byte("null"), nil
	}
	if raw, ok := value.(json.RawMessage); ok && json.Valid(raw) && utf8.Valid(raw) {
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

// isStorable tells whether the server keeps a JSON text: it refuses U+0000 and lone surrogates, which Go's own strings
// cannot even say, but for the first.
func isStorable(text string) bool {
	unit := func(at int) (rune, bool) {
		if at+6 > len(text) || text[at:at+2] != `\u` {
			return 0, false
		}
		value, err := strconv.ParseUint(text[at+2:at+6], 16, 16)
		return rune(value), err == nil
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		letter, escaped := unit(i)
		switch {
		case !escaped:
			i++ // whatever is escaped, a backslash perhaps
		case letter == 0:
			return false
		case utf16.IsSurrogate(letter):
			low, paired := unit(i + 6)
			if !paired || utf16.DecodeRune(letter, low) == utf8.RuneError {
				return false
			}
			i += 11
		default:
			i += 5
		}
	}
	return true
}
