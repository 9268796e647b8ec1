"""A tiny course about numbers and words: headmaster must know nothing about its subject."""

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "tiny"
c.ClearSolutions.code_stub = {"python": "raise NotImplementedError()"}
c.Headmaster.hide = ["graders"]
