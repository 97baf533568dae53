{{- define "npu-platform.guard.config" -}}
mode: {{ .Values.guard.mode }}
taint: {{ .Values.guard.taint }}
thresholds:
  {{- include "npu-platform.thresholds" . | nindent 2 }}
{{- end -}}
