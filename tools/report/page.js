// Draws the charts of a report, which tools/report/html.cc describes in #charts, with Chart.js.
'use strict';

(function () {
  const kWidestLabel = 280;  // pixels; what is wider is cut, and whole under the pointer
  const kTickRoom = 14;      // between a label and its axis
  const kFewPoints = 16;     // of a line: each is marked

  const charts = JSON.parse(document.getElementById('charts').textContent);

  Chart.defaults.animation = false;
  Chart.defaults.maintainAspectRatio = false;
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.color = '#1b2330';
  Chart.defaults.layout.padding = {right: 6};

  const ruler = document.createElement('canvas').getContext('2d');
  ruler.font = Chart.defaults.font.size + 'px ' + Chart.defaults.font.family;
  const widthOf = (text) => ruler.measureText(text).width;

  function shortened(text) {
    if (widthOf(text) <= kWidestLabel) return text;
    let kept = text.length;
    while (widthOf(text.slice(0, kept) + '…') > kWidestLabel) --kept;
    return text.slice(0, kept) + '…';
  }

  // One width for the rows' names, and for the numbers beside lines and areas, of all charts: so
  // those that share an axis below each other have it at the same place.
  const labelWidth = kTickRoom + Math.ceil(Math.max(
      70, ...Object.values(charts).flatMap((chart) => chart.rows || [])
              .map((row) => widthOf(shortened(row)))));

  function significant(value) {
    return String(Number(value.toPrecision(3)));
  }

  const units = {
    number: [[1, '']],
    seconds: [[60, ' min'], [1, ' s'], [1e-3, ' ms'], [1e-6, ' us'], [1e-9, ' ns']],
    bytes: [[2 ** 30, ' GiB'], [2 ** 20, ' MiB'], [2 ** 10, ' KiB'], [1, ' B']],
  };

  function number(value) {
    const rounded = Number(value.toPrecision(9));
    if (rounded !== 0 && Math.abs(rounded) < 1e-3) return rounded.toExponential();
    return rounded.toLocaleString('en-US', {maximumFractionDigits: 9});
  }

  function written(quantity, value) {
    if (quantity === 'number' || value === 0) return number(value);
    const size = Math.abs(value);
    const all = units[quantity];
    const [unit, name] = all.find(([least]) => size >= least) || all[all.length - 1];
    return significant(value / unit) + name;
  }

  // Round numbers of bytes are powers of two.
  function binaryTicks(scale) {
    const step = 2 ** Math.ceil(Math.log2(Math.max(scale.max - scale.min, 8) / 8));
    scale.ticks = [];
    for (let value = 0; value <= scale.max; value += step) scale.ticks.push({value});
  }

  // 1, 2 and 5 of each power of ten: the labels of all would overlap.
  function logarithmicTicks(scale) {
    scale.ticks = scale.ticks.filter(({value}) => {
      const leading = value / 10 ** Math.floor(Math.log10(value) + 1e-9);
      return [1, 2, 5].some((digit) => Math.abs(leading - digit) < 1e-6);
    });
  }

  function axis(described, more) {
    const scale = {
      type: described.logarithmic ? 'logarithmic' : 'linear',
      title: {display: described.title !== '', text: described.title},
      // Round numbers only, not where the data happen to end.
      ticks: {callback: (value) => written(described.quantity, value), includeBounds: false},
      beginAtZero: described.fromZero,
    };
    if (described.whole) scale.ticks.precision = 0;
    if (described.quantity === 'bytes') scale.afterBuildTicks = binaryTicks;
    if (described.logarithmic) scale.afterBuildTicks = logarithmicTicks;
    if (described.leastRange > 0) {
      scale.suggestedMin = -described.leastRange;
      scale.suggestedMax = described.leastRange;
    }
    return Object.assign(scale, more);
  }

  const ofFixedWidth = (scale) => { scale.width = labelWidth; };

  const namedRows = {
    afterFit: ofFixedWidth,
    ticks: {autoSkip: false, callback(row) { return shortened(this.getLabelForValue(row)); }},
  };

  // Marks of lines that show in turns would all lie on each other.
  function marked(line) {
    return line.points.length === 1 ||
        (line.points.length <= kFewPoints && line.style === 'plain');
  }

  function lineData(chart, line, index, inTurns) {
    const dash = 8;
    const data = {
      label: line.name,
      data: line.points,
      borderColor: line.style === 'wide' ? line.tint : line.colour,
      backgroundColor: line.colour,
      borderWidth: line.style === 'wide' ? 7 : 2,
      borderJoinStyle: 'round',
      order: line.style === 'wide' ? 1 : 0,
      pointRadius: marked(line) ? 3 : 0,
      clip: 4,  // a mark on the edge is whole
      pointHitRadius: 6,
    };
    if (line.style === 'in turns' && inTurns.length > 1) {
      data.borderDash = [dash, dash * (inTurns.length - 1)];
      data.borderDashOffset = -dash * inTurns.indexOf(line);
    }
    if (chart.stacked) {
      Object.assign(data, {
        stepped: true,
        fill: index === 0 ? 'origin' : '-1',
        borderWidth: 1,
        pointRadius: 0,
      });
    }
    return data;
  }

  function lines(chart) {
    const inTurns = chart.lines.filter((line) => line.style === 'in turns');
    const last = Math.max(...chart.lines.map(
        (line) => line.points.length > 0 ? line.points[line.points.length - 1].x : 0));
    return {
      type: 'line',
      data: {datasets: chart.lines.map((line, index) => lineData(chart, line, index, inTurns))},
      options: {
        interaction: {mode: 'nearest', axis: 'x', intersect: false},
        scales: {
          x: axis(chart.x, chart.stacked ? {min: 0, max: last} : {max: last}),
          y: axis(chart.y, {stacked: chart.stacked, afterFit: ofFixedWidth}),
        },
        plugins: {tooltip: {callbacks: {
          title: (items) => chart.x.title + ' ' + written(chart.x.quantity, items[0].parsed.x),
          label: (item) => item.dataset.label + ': ' +
              written(chart.y.quantity, item.raw.y === null ? NaN : item.raw.y),
        }}},
      },
    };
  }

  function bars(chart) {
    return {
      type: 'bar',
      data: {
        labels: chart.rows,
        datasets: chart.segments.map(
            (segment) => ({label: segment.name, data: segment.values, backgroundColor: segment.colour})),
      },
      options: {
        indexAxis: 'y',
        scales: {
          x: axis({title: '', quantity: chart.quantity}, {stacked: true, beginAtZero: true}),
          y: Object.assign({stacked: true}, namedRows),
        },
        plugins: {tooltip: {callbacks: {
          label: (item) => item.dataset.label + ': ' + written(chart.quantity, item.raw),
          footer: ([item]) => 'together: ' + written(
              chart.quantity, chart.segments.reduce((sum, segment) => sum + segment.values[item.dataIndex], 0)),
        }}},
      },
    };
  }

  function spans(chart) {
    return {
      type: 'bar',
      data: {
        labels: chart.rows,
        datasets: chart.kinds.map((kind) => ({
          label: kind.name,
          data: kind.spans,
          backgroundColor: kind.colour,
          grouped: false,
          minBarLength: 1,
          barPercentage: 0.95,
          categoryPercentage: 0.95,
        })),
      },
      options: {
        indexAxis: 'y',
        scales: {
          x: axis({title: '', quantity: 'seconds'}, {min: 0, max: chart.seconds}),
          y: namedRows,
        },
        plugins: {tooltip: {callbacks: {
          label: (item) => item.raw.label + ': ' + written('seconds', item.raw.x[0]) + ' to ' +
              written('seconds', item.raw.x[1]),
        }}},
      },
    };
  }

  // On white, so that a picture of it is one too.
  const paper = {
    id: 'paper',
    beforeDraw(chart) {
      chart.ctx.save();
      chart.ctx.fillStyle = '#ffffff';
      chart.ctx.fillRect(0, 0, chart.width, chart.height);
      chart.ctx.restore();
    },
  };

  Chart.defaults.plugins.legend.align = 'start';
  Chart.defaults.plugins.legend.labels.boxWidth = 14;
  Chart.defaults.plugins.legend.labels.boxHeight = 10;
  // In the order of the tables, each a patch of the colour, however its line is drawn.
  Chart.overrides.line.plugins = {legend: {labels: {
    generateLabels: (chart) => Chart.defaults.plugins.legend.labels.generateLabels(chart).map(
        (label) => Object.assign(label, {fillStyle: label.strokeStyle, lineWidth: 0})),
    sort: (a, b) => a.datasetIndex - b.datasetIndex,
  }}};

  const draw = {lines, bars, spans};
  for (const [id, chart] of Object.entries(charts)) {
    const canvas = document.querySelector('#' + CSS.escape(id) + ' canvas');
    new Chart(canvas, Object.assign({plugins: [paper]}, draw[chart.kind](chart)));
  }
})();
