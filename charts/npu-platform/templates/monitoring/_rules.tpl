{{/*
Replaces the words in capitals of rules/*.yaml. Takes (dict "root" $ "text" … "threshold" …).
*/}}
{{- define "npu-platform.rules.text" -}}
{{- $values := .root.Values.monitoring.rules | default dict -}}
{{- $names := include "npu-platform.plugin.resources" .root | fromJsonArray -}}
{{- $sanitised := list -}}
{{- $quota := list -}}
{{- range $names -}}
{{- $sanitised = append $sanitised (regexReplaceAll "[^a-zA-Z0-9_]" . "_") -}}
{{- $quota = append $quota (replace "." "[.]" (printf "requests.%s" .)) -}}
{{- end -}}
{{- .text
  | replace "FALLBACK_CRITICAL_CELSIUS" (dig "fallbackCriticalCelsius" 88 $values | toString)
  | replace "MANY_NODES_RATIO" (dig "manyNodesHotRatio" 0.3 $values | toString)
  | replace "NPU_QUOTA_RESOURCES" (join "|" ($quota | uniq))
  | replace "NPU_RESOURCES" (join "|" ($sanitised | uniq))
  | replace "THRESHOLD" (toString .threshold)
-}}
{{- end -}}

{{/* "yes" where every component a rule needs is enabled. Takes (dict "root" $ "rule" …). */}}
{{- define "npu-platform.rules.wanted" -}}
{{- $wanted := "yes" -}}
{{- range .rule.needs }}{{ if not (index $.root.Values .).enabled }}{{ $wanted = "" }}{{ end }}{{ end -}}
{{- $wanted -}}
{{- end -}}
