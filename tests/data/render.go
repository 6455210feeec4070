// Renders templates of a Helm chart as Helm does, by Go's own library, with the two functions that the chart uses beside
// the language's own. It reads {"data": {...}, "templates": {name: text}} and writes the texts by name.
package main

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"text/template"
)

func main() {
	var given struct {
		Data      map[string]interface{} `json:"data"`
		Templates map[string]string      `json:"templates"`
	}
	check(json.NewDecoder(os.Stdin).Decode(&given))
	functions := template.FuncMap{
		"toJson": func(value interface{}) (string, error) {
			text, err := json.Marshal(value)
			return string(text), err
		},
		"fail": func(why string) (string, error) { return "", errors.New(why) },
	}
	found := map[string]string{}
	for name, text := range given.Templates {
		parsed, err := template.New(name).Funcs(functions).Option("missingkey=error").Parse(text)
		check(err)
		var out strings.Builder
		check(parsed.Execute(&out, given.Data))
		found[name] = out.String()
	}
	check(json.NewEncoder(os.Stdout).Encode(found))
}

func check(err error) {
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}
