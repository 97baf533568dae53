{{/*
The block of the configuration that says when a device is hot. Takes the root.
*/}}
{{- define "npu-platform.thresholds" -}}
preset: {{ .Values.thresholds.preset }}
{{- with .Values.thresholds.temperatures }}
{{ toYaml . }}
{{- end }}
{{- if eq (include "npu-platform.clampsClocks" .) "true" }}
# The plugin lowers clocks itself: a low clock is no sign of heat here.
clockEvidence: false
{{- end }}
timing:
  {{- toYaml .Values.thresholds.timing | nindent 2 }}
{{- end -}}

{{/* "true" where the plugin of any profile lowers clocks. Takes the root. */}}
{{- define "npu-platform.clampsClocks" -}}
{{- $clamps := dig "heat" "clampFrequency" false .Values.plugin -}}
{{- range .Values.plugin.profiles -}}
{{- $clamps = or $clamps (dig "heat" "clampFrequency" false .) -}}
{{- end -}}
{{- $clamps -}}
{{- end -}}

{{/*
Fail where the temperatures contradict each other, completed as the services complete them
(npu/thresholds.py): for a named preset, or for every preset with `auto`. Takes the root.
*/}}
{{- define "npu-platform.checkThresholds" -}}
{{- $given := .Values.thresholds.temperatures -}}
{{- $criticals := dict "rk3588" 88 "rk3576" 88 "rk356x" 78 "ascend" 88 -}}
{{- if ne .Values.thresholds.preset "auto" -}}
{{- $criticals = pick $criticals .Values.thresholds.preset -}}
{{- end -}}
{{- range $preset, $usual := $criticals -}}
{{- $critical := float64 ($given.criticalCelsius | default $usual) -}}
{{- $hot := float64 ($given.hotCelsius | default (subf $critical 8)) -}}
{{- $warm := float64 ($given.warmCelsius | default (subf $hot 8)) -}}
{{- $all := dict
  "criticalCelsius" $critical "hotCelsius" $hot "warmCelsius" $warm
  "emergencyCelsius" (float64 ($given.emergencyCelsius | default (addf $critical 12)))
  "warmLeaveCelsius" (float64 ($given.warmLeaveCelsius | default (subf $warm 4)))
  "hotLeaveCelsius" (float64 ($given.hotLeaveCelsius | default (subf $hot 10)))
  "criticalLeaveCelsius" (float64 ($given.criticalLeaveCelsius | default (subf $critical 13))) -}}
{{- range $pair := list
  (list "warmCelsius" "hotCelsius" 0) (list "hotCelsius" "criticalCelsius" 0)
  (list "criticalCelsius" "emergencyCelsius" 0) (list "warmLeaveCelsius" "warmCelsius" 3)
  (list "hotLeaveCelsius" "hotCelsius" 3) (list "criticalLeaveCelsius" "criticalCelsius" 3) -}}
{{- $lower := index $all (index $pair 0) -}}
{{- $upper := index $all (index $pair 1) -}}
{{- $distance := index $pair 2 | float64 -}}
{{- if or (ge $lower $upper) (lt (subf $upper $lower) $distance) -}}
{{- $by := "" -}}
{{- if $distance }}{{ $by = printf "at least %v " $distance }}{{ end -}}
{{- fail (printf "thresholds.temperatures.%s (%v) must be %sbelow thresholds.temperatures.%s (%v), also for boards of preset %s; keys that are not set follow the others" (index $pair 0) $lower $by (index $pair 1) $upper $preset) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $timing := .Values.thresholds.timing -}}
{{- if lt (float64 $timing.hotHoldMaximumSeconds) (float64 $timing.hotHoldSeconds) -}}
{{- fail "thresholds.timing.hotHoldMaximumSeconds must not be below thresholds.timing.hotHoldSeconds" -}}
{{- end -}}
{{- if lt (float64 $timing.lostSeconds) (float64 $timing.missingSeconds) -}}
{{- fail "thresholds.timing.lostSeconds must not be below thresholds.timing.missingSeconds" -}}
{{- end -}}
{{- end -}}
