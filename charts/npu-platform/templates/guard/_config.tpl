{{- define "npu-platform.guard.config" -}}
mode: {{ .Values.guard.mode }}
taint: {{ .Values.guard.taint }}
{{- end -}}
